"""What can a job lose time to? One file a cause; `opsk.planner.losses.losses` lists them."""
