"""Translation between dialects by LiteLLM, in a process of its own: `translator` is our side, `server` is its."""
