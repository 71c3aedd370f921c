"""What every room of the runners needs: streams, stopping, this machine, how a run is carried out."""
