"""Sandboxes as containers of any engine that speaks Docker's API: Docker itself, or Podman's service."""
