#!/bin/bash

# Parameters
#SBATCH --account=lab
#SBATCH --array=0-9%10
#SBATCH --constraint='a100|h100'
#SBATCH --cpus-per-task=8
#SBATCH --exclusive
#SBATCH --gres=gpu:a100:4
#SBATCH --job-name=name
#SBATCH --mail-type=FAIL
#SBATCH --mem=64G
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --open-mode=append
#SBATCH --output='/shared/my jobs/%A_%a_0_log.out'
#SBATCH --partition=gpu
#SBATCH --qos=long
#SBATCH --requeue
#SBATCH --signal=USR2@300
#SBATCH --time=1-00:00:00

# setup
module load cuda
ulimit -n 4096
export WORDS='two words'
cd /shared/code || exit 1
export PYTHONPATH=/shared/code${PYTHONPATH:+:$PYTHONPATH}

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output '/shared/my jobs/%A_%a_%t_log.out' --open-mode=append --export=ALL --kill-on-bad-exit=1 --cpus-per-task=8 PYTHON -u -m vitinit.slurm.submit '/shared/my jobs/call.pickle' SHA256
