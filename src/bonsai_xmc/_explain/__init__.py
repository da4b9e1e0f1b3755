"""Why a row gets a label, and why not another: integer products, margins, paths, and the way to the score."""
