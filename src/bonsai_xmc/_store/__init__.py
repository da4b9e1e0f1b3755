"""Files: bytes on the disk (`files`), bytes ↔ named arrays (`container`), arrays ↔ models (`format`)."""
