"""What the user asks for: profiles, their jobs, and the plan made of them. Nothing is started, torch not imported."""
