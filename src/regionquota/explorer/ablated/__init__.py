"""What stands in the place of a safeguard that is taken out, as (name, safeguard, (where, attribute, instead))."""
