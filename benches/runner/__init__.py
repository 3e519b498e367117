"""What benches/run is made of: the workloads and targets, the figures, the peers, the table, the chart."""
