"""How is Slurm asked, and what does it say of jobs and nodes? One port, with an adapter on Slurm's commands."""
