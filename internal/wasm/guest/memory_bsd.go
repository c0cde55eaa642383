//go:build unix && !linux

package guest

const mapNoReserve = 0
