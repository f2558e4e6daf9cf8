"""Messages, events, effects, observations and settings of the overlay. It holds no logic and imports tables only."""
