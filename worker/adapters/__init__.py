"""Adapters at the edges: each speaks to one outside thing and translates its errors at the seam."""
