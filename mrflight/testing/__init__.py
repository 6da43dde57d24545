"""What tests of jobs and of programs that embed a shuffle need: failures on order."""
