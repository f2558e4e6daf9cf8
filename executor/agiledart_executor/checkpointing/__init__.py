"""Checkpointing: instances are saved at barriers and restored, and sources are rewound to a checkpoint."""
