"""The kernel's side of the live panel: what JupyterLab's right sidebar shows of a notebook's live objects, and warns of.

It is silent until a front end opens the panel's connection, and as long as torch is not imported.
"""
