"""What the tests compare with: models run by `transformers`, and slow NumPy versions written from the contract."""
