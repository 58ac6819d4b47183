"""The web pages of the server, under ``/ui/``: one module a page, templates beside them."""
