"""Agent Skills: finding them, putting them where an agent looks, naming them in a prompt."""
