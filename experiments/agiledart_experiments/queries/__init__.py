"""The applications of figure 9: their input at a rate, the moments of their results, and the engines that run them."""
