#!/bin/bash
# Open MPI, one process for each rank:
#
#     RANKZERO_URL=https://lab.example.org RANKZERO_TOKEN=… examples/anywhere/mpirun.sh host1:8,host2:8 examples/ddp.py
#
# The first host is the address where the ranks meet; -x passes the variables on to the others.

export MASTER_ADDR=${MASTER_ADDR:-${1%%[:,]*}} MASTER_PORT=${MASTER_PORT:-29500}

exec mpirun --host "$1" -x MASTER_ADDR -x MASTER_PORT -x RANKZERO_URL -x RANKZERO_TOKEN -x PATH bash -c '
    export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
    exec rankzero watch --name trainer -- python "$@"
' trainer "${@:2}"
