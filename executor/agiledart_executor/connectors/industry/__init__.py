"""Machines (extra `[industry]`): Modbus with pymodbus, serial lines with pyserial."""
