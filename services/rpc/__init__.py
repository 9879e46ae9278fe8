"""The gRPC server under each service. It knows no contract: servicers and their descriptors are given."""
