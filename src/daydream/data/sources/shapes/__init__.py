"""The embedded data set: outlines under changing textures, colours, places and light, drawn when asked for."""
