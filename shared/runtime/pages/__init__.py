"""Pages for people: templates, what pages load, who may open a console, and the reference of an HTTP interface."""
