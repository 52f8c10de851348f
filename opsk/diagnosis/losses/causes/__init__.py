"""What can a job lose time to? One file a cause; `opsk.diagnosis.losses.losses` lists them."""
