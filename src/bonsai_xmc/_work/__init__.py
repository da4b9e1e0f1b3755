"""How the stages of training are carried out: units of work, who solves them, and what is kept of them."""
