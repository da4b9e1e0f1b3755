"""``bonsai serve``: models of texts over HTTP. Needs the extra ``serve``."""
