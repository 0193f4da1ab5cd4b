"""What shells of blocking frameworks are built on: one request, driven by the thread that serves it."""
