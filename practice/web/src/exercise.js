console.log('exercise.js')
