"""`regionquota dev`: everything on this machine, in one process tree.

layout -- where things lie, and which ports they keep over restarts
stack  -- starts them in order, keeps them running, ends them in reverse
"""

from regionquota.dev.layout import DEPLOYMENT_FILE, Layout, Options, default_data_dir
from regionquota.dev.stack import Stack

__all__ = ["DEPLOYMENT_FILE", "Layout", "Options", "Stack", "default_data_dir"]
