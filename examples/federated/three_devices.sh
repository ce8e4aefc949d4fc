#!/usr/bin/env bash
# Runs a SuperLink and three SuperNodes on this machine, each in its own network namespace, as if on four machines:
#   sudo env PATH="$PATH" examples/federated/three_devices.sh [RUN_CONFIG...]
# Run it in the folder in which prepare.py was run. With CUT=N, the third device is disconnected when round N begins, and
# reconnected CUT_SECONDS later.
set -euo pipefail

app=$(dirname "$(realpath "$0")")
link=10.99.0.1
logs=fleet-out/logs
export FLWR_HOME=$PWD/fleet-out/flwr FLWR_TELEMETRY_ENABLED=0
mkdir -p "$logs" "$FLWR_HOME"
rm -f "$logs"/* # removes the logs of an older run
printf '[superlink]\ndefault = "fleet"\n\n[superlink.fleet]\naddress = "%s:8000"\ninsecure = true\n' $link > "$FLWR_HOME/config.toml"

finish() {
  # Child processes of SuperNodes outlive them, and would keep their namespaces.
  for i in 1 2 3; do kill $(ip netns pids fleet$i 2> /dev/null) 2> /dev/null || true; done
  kill $(jobs -p) 2> /dev/null || true
  wait
  for i in 1 2 3; do
    ip link del fleet-veth$i 2> /dev/null || true
    ip netns del fleet$i 2> /dev/null || true
  done
  ip link del fleet-bridge 2> /dev/null || true
}
trap finish EXIT

ip link add fleet-bridge type bridge
ip addr add $link/24 dev fleet-bridge
ip link set fleet-bridge up
for i in 1 2 3; do
  ip netns add fleet$i
  ip link add fleet-veth$i type veth peer name eth0 netns fleet$i
  ip link set fleet-veth$i master fleet-bridge up
  ip -n fleet$i addr add 10.99.0.1$i/24 dev eth0
  ip -n fleet$i link set eth0 up
  ip -n fleet$i link set lo up
done

flower-superlink --insecure --host $link --disable-runtime-dependency-installation > "$logs/superlink" 2>&1 &
for i in 1 2 3; do
  ip netns exec fleet$i flower-supernode --insecure --superlink $link:8000 \
    --node-config "data=\"$PWD/fleet-out/rows/$i\" folder=\"$PWD/fleet-out/devices/$i\" bundle=\"$PWD/fleet-out/smollm2.bundle\"" \
    > "$logs/device$i" 2>&1 &
done

if [ -n "${CUT:-}" ]; then
  (
    until grep -q "ROUND $CUT/" "$logs/run" 2> /dev/null; do sleep 0.2; done
    ip link set fleet-veth3 down
    echo "device 3 is cut off"
    sleep "${CUT_SECONDS:-60}"
    ip link set fleet-veth3 up
    echo "device 3 is back"
  ) &
fi

until curl -so /dev/null "http://$link:8000/"; do sleep 0.5; done
more=()
for setting in "$@"; do more+=(--run-config "$setting"); done
flwr run "$app" fleet --stream --run-config "bundle=\"$PWD/fleet-out/smollm2.bundle\" out=\"$PWD/fleet-out/three\"" \
  --run-config 'strategy.min-available-nodes=3' "${more[@]}" 2>&1 | tee "$logs/run"
