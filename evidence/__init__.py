"""Raw trials, the protocol they follow, and the page that is recomputed from them."""
