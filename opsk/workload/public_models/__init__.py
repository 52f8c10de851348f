"""Which shape has a public model? The catalogue that ships with opsk, each entry with its source."""
