"""Source `modbus:` (extra `[industry]`): registers of devices, read with pymodbus."""
