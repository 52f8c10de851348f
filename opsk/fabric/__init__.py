"""What is really cabled to what: fabrics, rails, leaves, spines, HB domains; and the dialects they are read from."""
