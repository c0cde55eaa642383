// Package scale simulates many daemons on a large Kubernetes cluster. The daemons' engines are
// real, with their pools and queues; the cluster is a model of the parts that every pod waits for,
// in simulated time. docs/scale.md has the results.
package scale
