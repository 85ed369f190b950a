"""What ranks print, line by line, and what is found there: metrics, and how far the training has come."""
