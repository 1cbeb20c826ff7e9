"""One supervisor for all processes of a machine. It imports neither Django nor torch: it must stay small and live."""
