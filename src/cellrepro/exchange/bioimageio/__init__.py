"""A network as a package of bioimage.io, with a tolerance that was measured."""
