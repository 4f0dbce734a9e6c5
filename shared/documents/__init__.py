"""What travels and what is signed: strict models, canonical bytes, keys and signatures."""
