"""Readers: arrays, tables and files of measurements become runs."""
