"""The layers that the models are made of: plain classes around torch functions."""
