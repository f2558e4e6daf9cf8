"""Instances are saved at barriers and restored; sources are rewound to a checkpoint."""
