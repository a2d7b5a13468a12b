"""Several hosts on one machine: a network that can be cut, and jobs whose workers are spread over it."""
