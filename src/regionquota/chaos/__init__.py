"""`regionquota chaos`: real faults on real processes, and a proof afterwards that nothing was lost or doubled.

cluster   -- the processes, and a proxy on every way between them
callers   -- services that repeat what was not answered; history -- what they asked and were told
scenarios -- what is broken
books     -- what the databases say afterwards; check, slices -- pure: whether that is what callers were told
run       -- one scenario from start to verdict
"""
