"""What is asked for: profiles, their jobs, and the plan that they become. Pure: no torch, nothing is started."""
