"""The wire dialects: one module for each, all behind `dialects.base.Dialect`."""
