"""The parts of the scripted model server: what it says, how it reads a request, and one module per wire dialect."""
