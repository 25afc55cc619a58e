"""Puts adapters, region, coordinator and HTTP together. The only place that names concrete adapters."""
