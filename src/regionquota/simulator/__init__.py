"""What a deployment would do with a demand: the product's own planner, agents and services, in virtual time."""
