"""``bonsai serve``: text models over HTTP. Needs the extra ``serve``."""
